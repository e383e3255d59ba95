"""A recurrent Q over a grid of actions, which sees by a frozen AutoUI: the policy that R2D3 trains."""
