"""How the tiny base model is made: synthetic screens of the simulated phone, touches to make, words to copy."""
