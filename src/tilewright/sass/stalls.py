def with_stalls(code, block, arch): return list(code[block.start:block.stop]),0
def without_yields(code, spans, arch): return code
