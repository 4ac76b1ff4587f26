//! Commands without credentials.

use std::time::Duration;

use extant_testkit::{Cmd, Need, Result, need, tools};

use crate::line::ensure_plain_error;

/// A client without credentials asks its cloud, and none is here: there is no network at all. The
/// error comes at once, not when the patience of requests is over.
#[test]
fn missing_credentials_are_told_at_once() -> Result<()> {
    if !need(&[Need::Root, Need::Tool("unshare")]) {
        return Ok(());
    }
    for (stored, name) in [
        ("s3://images/root", "AWS_ACCESS_KEY_ID"),
        ("gs://images/root", "GOOGLE_SERVICE_ACCOUNT"),
        ("az://images/root", "AZURE_STORAGE_ACCOUNT_KEY"),
    ] {
        let alone = Cmd::new("unshare").args(["--net", "env", "-i", "HOME=/nonexistent"]);
        let alone = alone.args(["EXTANT_CACHE=", "AZURE_STORAGE_ACCOUNT_NAME=images"]);
        let versions = alone.arg(tools::extant()?).args(["versions", stored]);
        let outcome = versions.limit(Duration::from_secs(60)).run()?;
        ensure_plain_error(&outcome, &[name])?;
    }
    Ok(())
}
