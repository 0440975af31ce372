//! Tests of the screens: what they look like at five sizes, what each key does, and that no size,
//! no name and no output makes them panic.

mod keys;
mod screens;
mod sizes;
mod world;
