"""The policy: actions and their text, tokens, the AutoUI-shaped model, LoRA, the acting agent, and its pre-training."""
