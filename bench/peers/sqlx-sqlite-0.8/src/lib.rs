//! Empty: see the `[patch]` section in the manifest one folder up.
