//! A model check of pushes and runs of gc: the real code, on a store in memory, in all orders of
//! their requests.
//!
//! A call is run again from its start with the answers that it had so far, until it sends a request
//! that has no answer yet. So a state is a value: the store, the time, and for each call its
//! answers. The search takes each step from each state, and meets a state once.
//!
//! # Invariants
//! - Each object that a version names is there, at every moment.
//! - When all has ended, some runs of gc leave nothing that no version names, and no list.

mod actor;
mod shelf;
mod state;
