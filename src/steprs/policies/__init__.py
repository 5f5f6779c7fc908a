"""Models, behind one interface: ids and a mask in, logits out."""
