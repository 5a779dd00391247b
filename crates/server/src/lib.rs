//! The local API of a store.
