//! Promise: an object store behind a line that fails loses nothing and makes nothing wrong.
//!
//! Each test has a server of its own, and a proxy in front of it that fails requests by plan. The
//! server is MinIO where `EXTANT_MINIO` names it, as `scripts/stores` does, and else a small one in
//! memory: MinIO is the judge.

mod altered;
mod credentials;
mod endless;
mod line;
mod moments;
mod versions;
