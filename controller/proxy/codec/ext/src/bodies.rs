//! Bodies as Python sees them.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use heads::Ending;

use crate::requests::RequestHead;
use crate::responses::ResponseHead;
use crate::{tail, Limits, OrRefused};

#[derive(FromPyObject)]
enum Head<'py> {
    Request(PyRef<'py, RequestHead>),
    Response(PyRef<'py, ResponseHead>),
}

#[pyclass(module = "controller.proxy.codec")]
pub struct Body(heads::Body);

/// Out, payload bytes, ended, rest.
type Fed = (Py<PyBytes>, usize, bool, Py<PyBytes>);

#[pymethods]
impl Body {
    #[new]
    fn new(head: Head<'_>, request: Option<PyRef<'_, RequestHead>>, limits: &Limits) -> Self {
        Body(match head {
            Head::Request(head) => heads::Body::of_request(&head.head, limits.0),
            Head::Response(head) => {
                heads::Body::of_response(&head.head, request.as_ref().map(|request| &request.head), limits.0)
            }
        })
    }

    #[getter]
    fn ended(&self) -> bool {
        self.0.has_ended()
    }

    fn feed(&mut self, data: &Bound<'_, PyBytes>) -> PyResult<OrRefused<Fed>> {
        let py = data.py();
        let bytes = data.as_bytes();
        let fed = match self.0.feed(bytes) {
            Ok(fed) => fed,
            Err(refusal) => return Ok(OrRefused::of(Err(refusal))),
        };
        let out = match fed.out {
            None if fed.taken == bytes.len() => data.clone().unbind(),
            None => PyBytes::new(py, &bytes[..fed.taken]).unbind(),
            Some(out) => PyBytes::new_with(py, out.len(), |into| {
                out.write(bytes, into);
                Ok(())
            })?
            .unbind(),
        };
        Ok(OrRefused::Value((out, fed.payload, fed.ended, tail(data, fed.taken))))
    }

    fn eof(&self, py: Python<'_>, clean: bool) -> Ended {
        match self.0.eof(clean) {
            Ending::Complete(out) => Ended::Complete(Complete { out: PyBytes::new(py, out).unbind() }),
            Ending::Truncated => Ended::Truncated(Truncated),
        }
    }
}

#[derive(IntoPyObject)]
enum Ended {
    Complete(Complete),
    Truncated(Truncated),
}

/// The body is whole; `out` goes out yet.
#[pyclass(frozen, module = "controller.proxy.codec")]
pub struct Complete {
    out: Py<PyBytes>,
}

#[pymethods]
impl Complete {
    #[getter]
    fn out(&self, py: Python<'_>) -> Py<PyBytes> {
        self.out.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("Complete(b\"{}\")", self.out.as_bytes(py).escape_ascii())
    }
}

/// The body is short; it must not look whole.
#[pyclass(frozen, module = "controller.proxy.codec")]
pub struct Truncated;

#[pymethods]
impl Truncated {
    fn __repr__(&self) -> &'static str {
        "Truncated()"
    }
}
