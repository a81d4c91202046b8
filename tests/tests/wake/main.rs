//! Whoever brings work wakes the one that serves it, if that one sleeps; nobody else, and once.

mod mark;
mod order;
mod ring;
mod share;
