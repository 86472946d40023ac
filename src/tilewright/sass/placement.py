def with_loads(code, block, arch): return list(code[block.start:block.stop]),0
