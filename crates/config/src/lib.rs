//! What an operator may ask for: raw YAML and its validated types.
