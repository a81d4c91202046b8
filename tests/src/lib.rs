//! Real servers, many sessions.
