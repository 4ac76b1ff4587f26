//! Serves the files of an image over HTTP, without root and without mounting it.
//!
//! ```sh
//! cargo run --example http -- disk.img 127.0.0.1:8080
//! curl http://127.0.0.1:8080/etc/hostname
//! ```

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use extant::Filesystem;

/// The longest request line, and the most header lines, that are read.
const MAX_LINE: u64 = 8192;
const MAX_HEADERS: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let image = args.next().ok_or("usage: http IMAGE ADDRESS")?;
    let address = args.next().ok_or("usage: http IMAGE ADDRESS")?;
    let address = address.to_str().ok_or("the address is not text")?;
    let fs = Filesystem::open(image)?;
    serve(&TcpListener::bind(address)?, &fs, usize::MAX);
    Ok(())
}

/// Answers so many connections, each on a thread of its own. They share the file system and its
/// cache, and wait for each other nowhere.
pub(crate) fn serve(listener: &TcpListener, fs: &Filesystem, connections: usize) {
    thread::scope(|scope| {
        for stream in listener.incoming().take(connections) {
            scope.spawn(move || {
                if let Err(error) = stream.and_then(|stream| answer(&stream, fs)) {
                    eprintln!("{error}");
                }
            });
        }
    });
}

/// Answers one request, and closes the connection.
fn answer(mut stream: &TcpStream, fs: &Filesystem) -> io::Result<()> {
    let mut reader = BufReader::new(io::Read::take(stream, MAX_LINE));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some("GET"), Some(path)) = (words.next(), words.next()) else {
        return stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    };
    let path = path.split('?').next().unwrap_or("/").to_owned();
    for header in reader.lines().take(MAX_HEADERS) {
        if header?.is_empty() {
            break;
        }
    }
    let found = match fs.metadata(&path) {
        Ok(found) if found.is_dir() => return list(stream, fs, &path),
        Ok(found) if found.is_file() => found,
        _ => return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    };
    let file = fs.open_file(&path)?;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
        found.len()
    )?;
    io::copy(&mut io::Read::take(&file, found.len()), &mut stream)?;
    Ok(())
}

/// Answers with the names in a directory.
fn list(mut stream: &TcpStream, fs: &Filesystem, path: &str) -> io::Result<()> {
    let mut names = String::new();
    for entry in fs.read_dir(path)? {
        let entry = entry?;
        names += &entry.file_name().to_string_lossy();
        names += if entry.file_type()?.is_dir() {
            "/\n"
        } else {
            "\n"
        };
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{names}",
        names.len()
    )
}
