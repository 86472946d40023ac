"""What the stencils have in common that are fed by asynchronous copies: a block's way through C."""
