"""Products in double precision from residues, multiplied on int8 tensor cores."""
