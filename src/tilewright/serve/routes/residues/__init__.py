"""``accuracy="fp64"``: double precision from products of residues on int8 tensor cores."""
