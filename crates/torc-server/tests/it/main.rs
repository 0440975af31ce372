//! The server as its clients see it: the router in process, and a real listener on a loopback port.

mod access;
mod boot;
mod events;
mod fuzz;
mod limits;
mod openapi;
mod refusals;
mod reservations;
mod triage;
mod workflow;
mod world;
