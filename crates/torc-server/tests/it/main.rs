//! The server as its clients see it: its front in process, and a real listener on a loopback port.

mod access;
mod adversarial;
mod boot;
mod events;
mod front;
mod fuzz;
mod limits;
mod openapi;
mod page;
mod refusals;
mod reservations;
mod spawn;
mod triage;
mod walls;
mod workflow;
mod world;
