//! Black-box tests of the real program: input text, command line, output text, exit code.

mod basics;
mod crash;
mod golden;
mod handlers;
mod outcomes;
mod recovery;
mod support;
