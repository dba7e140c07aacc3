"""How Holdfast looks outside: `.proto` files in proto/, the stubs made from them in gen/, make.py between the two."""
