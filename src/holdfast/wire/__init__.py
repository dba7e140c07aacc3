"""How Holdfast looks outside: `.proto` files in proto/, the stubs generated from them in gen/, and codecs."""
