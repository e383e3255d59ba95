"""Any vision-language model of the Hugging Face library as a policy, read from its directory."""
