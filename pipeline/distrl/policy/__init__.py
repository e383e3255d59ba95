"""The policy: its protocol, actions and their text, LoRA adapters, and one folder for each family of models."""
