//! The programs of `examples` do what they say.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

use extant::Filesystem;
use extant::testing::{assert_sound, filesystem};
use extant_testkit::Result;

#[path = "../examples/between.rs"]
#[allow(dead_code, reason = "the test calls what `main` calls")]
mod between;
#[path = "../examples/build.rs"]
#[allow(dead_code, reason = "the test calls what `main` calls")]
mod build;
#[path = "../examples/http.rs"]
#[allow(dead_code, reason = "the test calls what `main` calls")]
mod http;
#[path = "../examples/threads.rs"]
#[allow(dead_code, reason = "the test calls what `main` calls")]
mod threads;
#[path = "../examples/work_queue.rs"]
#[allow(dead_code, reason = "the test calls what `main` calls")]
mod work_queue;

/// A path for an image, which is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        let name = format!("extant-example-{}-{name}", std::process::id());
        Temporary(std::env::temp_dir().join(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Response of a server to one request.
fn get(listener: &TcpListener, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn images_are_built_used_by_threads_and_copied() {
    let (one, two) = (Temporary::new("one"), Temporary::new("two"));
    build::build(&one.0).unwrap();
    threads::threads(&one.0).unwrap();
    let bytes = between::copy((&one.0, "/etc".as_ref()), (&two.0, "/old/etc".as_ref())).unwrap();
    assert_eq!(bytes, 15);
    let device = extant::device::MemoryDevice::from_bytes(&std::fs::read(&two.0).unwrap());
    assert_sound(&std::sync::Arc::new(device));
    let (old, new) = (
        Filesystem::open(&one.0).unwrap(),
        Filesystem::open(&two.0).unwrap(),
    );
    for name in ["site", "site/config", "site.conf"] {
        let old = old.symlink_metadata(format!("/etc/{name}")).unwrap();
        let new = new.symlink_metadata(format!("/old/etc/{name}")).unwrap();
        let of = |found: &extant::Metadata| (found.mode(), found.gid(), found.modified());
        assert_eq!(of(&old), of(&new), "{name}");
    }
    assert_eq!(
        new.read("/old/etc/site/config").unwrap(),
        b"colour = green\n"
    );
}

#[test]
fn files_are_served_over_http() -> Result<()> {
    let fs = filesystem(16 << 20)?;
    fs.create_dir_all("/srv/sub")?;
    fs.write("/srv/page", "content of the page")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // The server ends after so many: nothing may fail before the last one.
    let [page, list, missing] = std::thread::scope(|scope| {
        scope.spawn(|| http::serve(&listener, &fs, 3));
        ["/srv/page?x=1", "/srv", "/nothing"].map(|path| get(&listener, path))
    });
    let (page, list, missing) = (page?, list?, missing?);
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 19\r\n";
    assert!(page.starts_with(head), "{page}");
    assert!(page.ends_with("\r\n\r\ncontent of the page"), "{page}");
    assert!(list.contains("sub/\n") && list.contains("page\n"), "{list}");
    assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
    Ok(())
}

#[test]
fn threads_take_files_from_a_queue() -> Result<()> {
    let fs = filesystem(16 << 20)?;
    for number in 0..40 {
        fs.create_dir_all(format!("/logs/{}", number % 4))?;
        let path = format!("/logs/{}/{number:02}", number % 4);
        fs.write(path, "line\n".repeat(number))?;
    }
    let counts = work_queue::count(&fs, "/logs".as_ref(), 3)?;
    let lines: Vec<_> = counts.iter().map(|(_, lines)| *lines).collect();
    let expected: Vec<_> = (0..4).flat_map(|dir| (dir..40).step_by(4)).collect();
    assert_eq!(lines, expected);
    Ok(())
}
