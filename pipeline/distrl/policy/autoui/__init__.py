"""The AutoUI family: a frozen vision tower, a T5 encoder-decoder, a vocabulary of plain words."""
