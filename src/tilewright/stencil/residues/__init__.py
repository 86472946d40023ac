"""Products in double precision from residues modulo small numbers, multiplied on int8 tensor cores."""
