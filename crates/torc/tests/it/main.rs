//! Black-box tests of the real program: input text, command line, output text, exit code.

mod basics;
mod golden;
mod outcomes;
mod support;
