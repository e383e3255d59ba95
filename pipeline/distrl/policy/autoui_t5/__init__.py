"""AutoUI as the DistRL paper trains it: BLIP-2's image encoder, gated fusion, and a FLAN-T5."""
