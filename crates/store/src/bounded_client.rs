//! A client of HTTP that reads answers only up to a bound, but for the content of objects.
//!
//! The client of `object_store` takes lists, errors and tokens into memory as they come. Chunks and
//! manifests are bounded where they are read, by the length that they may have.

use std::future::Future;
use std::pin::Pin;

use http_body_util::{BodyExt, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

/// The most bytes of an answer that is no object: a page of a list has some MiB at most.
const MOST: usize = 16 << 20;

/// Folders of objects that may be longer, also as Google's client writes paths.
const LONG: [&str; 4] = ["/chunks/", "/manifests/", "%2Fchunks%2F", "%2Fmanifests%2F"];

/// Returns whether an object of this path may be longer.
fn is_long(path: &str) -> bool {
    LONG.iter().any(|folder| path.contains(folder))
}

/// Makes clients that have the bound.
#[derive(Debug)]
pub(crate) struct BoundedConnector;

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(BoundedClient(client)))
    }
}

#[derive(Debug)]
struct BoundedClient(HttpClient);

/// An answer under way.
type Answering<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for BoundedClient {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answering<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let path = request.uri().path();
            let is_long = is_long(path);
            let answer = self.0.execute(request).await?;
            if is_long && answer.status().is_success() {
                return Ok(answer);
            }
            let (head, body) = answer.into_parts();
            let bounded = Limited::new(body, MOST).map_err(|error| {
                let error = error.downcast::<HttpError>().map(|error| *error);
                error.unwrap_or_else(|long| HttpError::new_boxed(HttpErrorKind::Decode, long))
            });
            Ok(HttpResponse::from_parts(
                head,
                HttpResponseBody::new(bounded),
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::is_long;

    #[test]
    fn chunks_and_manifests_may_be_long_at_all_vendors() {
        assert!(is_long("/bucket/prefix/chunks/ab/abcd"));
        assert!(is_long("/storage/v1/b/bucket/o/prefix%2Fmanifests%2Fabcd"));
        assert!(!is_long("/bucket/prefix/names/chunk/1"));
        assert!(!is_long("/bucket"));
    }
}
