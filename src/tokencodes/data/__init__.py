"""From raw documents to token windows: source, tokenizer, prepare, store, sampler."""
