//! The postroom client.
