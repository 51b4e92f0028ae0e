//! The Python face of `heads`: conversions only, no rule of its own.
#![forbid(unsafe_code)]

mod bodies;
mod requests;
mod responses;

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// What one message may cost.
#[pyclass(frozen, module = "controller.proxy.codec")]
struct Limits(heads::Limits);

#[pymethods]
impl Limits {
    #[new]
    #[pyo3(signature = (*, head_bytes=65_536, fields=256, informational=32))]
    fn new(head_bytes: u32, fields: u32, informational: u32) -> Self {
        Limits(heads::Limits {
            head_bytes: head_bytes as usize,
            fields: fields as usize,
            informational: informational as usize,
        })
    }

    fn __repr__(&self) -> String {
        let heads::Limits { head_bytes, fields, informational } = self.0;
        format!("Limits(head_bytes={head_bytes}, fields={fields}, informational={informational})")
    }
}

/// The message can't be served.
#[pyclass(frozen, module = "controller.proxy.codec")]
struct Refused(heads::Refusal);

#[pymethods]
impl Refused {
    #[getter]
    fn status(&self) -> u16 {
        self.0.status
    }

    #[getter]
    fn reason(&self) -> &'static str {
        self.0.reason
    }

    fn __repr__(&self) -> String {
        format!("Refused({}, {:?})", self.0.status, self.0.reason)
    }
}

/// A head or a body's piece, or why there is none.
#[derive(IntoPyObject)]
enum OrRefused<T> {
    Value(T),
    Refused(Refused),
}

impl<T> OrRefused<T> {
    fn of(result: Result<T, heads::Refusal>) -> Self {
        match result {
            Ok(value) => OrRefused::Value(value),
            Err(refusal) => OrRefused::Refused(Refused(refusal)),
        }
    }
}

/// `data` from `start` on; the same object if that is all of it.
/// What followed a head in one read: up to 256 kB, which must not stay in memory for as long as its head.
struct Rest {
    bytes: Mutex<Option<Py<PyBytes>>>,
    /// Before it was taken.
    size: usize,
}

impl Rest {
    fn new(data: &Bound<'_, PyBytes>, start: usize) -> Self {
        let size = data.as_bytes().len() - start;
        Rest { bytes: Mutex::new((size > 0).then(|| tail(data, start))), size }
    }

    fn take<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let taken = self.bytes.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.map_or_else(|| PyBytes::new(py, b""), |bytes| bytes.into_bound(py))
    }
}

fn tail(data: &Bound<'_, PyBytes>, start: usize) -> Py<PyBytes> {
    if start == 0 {
        return data.clone().unbind();
    }
    PyBytes::new(data.py(), &data.as_bytes()[start..]).unbind()
}

/// -1 stands for absent: a plain number costs less than an optional one, and reads as well.
fn or_absent(number: Option<u64>) -> i64 {
    number.and_then(|number| i64::try_from(number).ok()).unwrap_or(-1)
}

#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use super::bodies::{Body, Complete, Truncated};
    #[pymodule_export]
    use super::requests::{Forwarding, Identifiers, RequestHead, RequestReader};
    #[pymodule_export]
    use super::responses::{ResponseHead, ResponseReader};
    #[pymodule_export]
    use super::{Limits, Refused};
}
