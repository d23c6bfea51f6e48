//! Tables that are handed to Python without a copy, by Arrow's PyCapsule interface.

use arrow_array::builder::{BooleanBuilder, Float64Builder, StringBuilder, UInt64Builder};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::UInt32Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, RecordBatch, RecordBatchIterator,
    StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Schema};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use std::collections::HashMap;
use std::sync::Arc;

/// Columns of equal length.
#[pyclass(frozen, module = "bentpipe._native")]
pub(crate) struct Table {
    batch: RecordBatch,
}

/// Makes a table of rows, a column at a time. Columns may be null where nothing is known.
pub(crate) struct Builder<'r, R> {
    rows: &'r [R],
    fields: Vec<Field>,
    columns: Vec<ArrayRef>,
}

impl<'r, R> Builder<'r, R> {
    pub(crate) fn new(rows: &'r [R]) -> Self {
        Self {
            rows,
            fields: Vec::new(),
            columns: Vec::new(),
        }
    }

    pub(crate) fn text<T: AsRef<str> + ?Sized + 'r>(
        &mut self,
        name: &str,
        of: impl Fn(&'r R) -> Option<&'r T>,
    ) {
        let mut column = StringBuilder::new();
        for row in self.rows {
            column.append_option(of(row).map(AsRef::as_ref));
        }
        self.push(name, Arc::new(column.finish()));
    }

    pub(crate) fn real(&mut self, name: &str, of: impl Fn(&'r R) -> Option<f64>) {
        let mut column = Float64Builder::with_capacity(self.rows.len());
        for row in self.rows {
            column.append_option(of(row));
        }
        self.push(name, Arc::new(column.finish()));
    }

    pub(crate) fn count(&mut self, name: &str, of: impl Fn(&'r R) -> Option<u64>) {
        let mut column = UInt64Builder::with_capacity(self.rows.len());
        for row in self.rows {
            column.append_option(of(row));
        }
        self.push(name, Arc::new(column.finish()));
    }

    pub(crate) fn truth(&mut self, name: &str, of: impl Fn(&'r R) -> Option<bool>) {
        let mut column = BooleanBuilder::with_capacity(self.rows.len());
        for row in self.rows {
            column.append_option(of(row));
        }
        self.push(name, Arc::new(column.finish()));
    }

    /// A text that is one of few: its number among `labels`.
    pub(crate) fn label(&mut self, name: &str, labels: &[&str], of: impl Fn(&'r R) -> usize) {
        let keys: UInt32Array = self.rows.iter().map(|row| Some(of(row) as u32)).collect();
        let labels = Arc::new(StringArray::from(labels.to_vec()));
        let column = DictionaryArray::<UInt32Type>::new(keys, labels);
        self.push(name, Arc::new(column));
    }

    fn push(&mut self, name: &str, column: ArrayRef) {
        self.fields.push(field(name, column.data_type().clone()));
        self.columns.push(column);
    }

    pub(crate) fn build(self) -> Table {
        let schema = Arc::new(Schema::new(self.fields));
        let batch = RecordBatch::try_new(schema, self.columns);
        Table {
            batch: batch.expect("every column has a value for each row"),
        }
    }
}

/// A column, with the unit that its name ends with.
fn field(name: &str, kind: DataType) -> Field {
    let unit = name.rsplit_once('_').map(|(_, end)| end);
    let unit = unit.filter(|end| ["s", "ms", "mbps", "bytes", "segments", "packets"].contains(end));
    let metadata = unit.map(|unit| {
        let unit = if unit == "mbps" { "Mbit/s" } else { unit };
        ("unit".to_owned(), unit.to_owned())
    });
    Field::new(name, kind, true).with_metadata(HashMap::from_iter(metadata))
}

fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl Table {
    /// The table as a stream of Arrow arrays. A schema that is asked for is not followed: who asks casts.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = std::iter::once(Ok(self.batch.clone()));
        let reader = RecordBatchIterator::new(batches, self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new(py, stream, Some(c"arrow_array_stream".into()))
    }

    /// The types of the columns as an Arrow schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(failed)?;
        PyCapsule::new(py, schema, Some(c"arrow_schema".into()))
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    #[getter]
    fn columns(&self) -> Vec<String> {
        let schema = self.batch.schema();
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    #[getter]
    fn units(&self) -> HashMap<String, String> {
        let schema = self.batch.schema();
        let units = schema.fields().iter().filter_map(|field| {
            let unit = field.metadata().get("unit")?;
            Some((field.name().clone(), unit.clone()))
        });
        units.collect()
    }

    /// The values of one column as a list; `None` where there is no such column.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(column) = self.batch.column_by_name(name) else {
            return Ok(None);
        };
        let any = column.as_any();
        let len = column.len();
        let value = |row: usize| -> PyResult<Bound<'py, PyAny>> {
            if column.is_null(row) {
                return Ok(py.None().into_bound(py));
            }
            if let Some(texts) = any.downcast_ref::<StringArray>() {
                return texts.value(row).into_bound_py_any(py);
            }
            if let Some(reals) = any.downcast_ref::<Float64Array>() {
                return reals.value(row).into_bound_py_any(py);
            }
            if let Some(counts) = any.downcast_ref::<UInt64Array>() {
                return counts.value(row).into_bound_py_any(py);
            }
            if let Some(truths) = any.downcast_ref::<BooleanArray>() {
                return truths.value(row).into_bound_py_any(py);
            }
            let labels = any.downcast_ref::<DictionaryArray<UInt32Type>>();
            let labels = labels.and_then(|labels| labels.downcast_dict::<StringArray>());
            let labels = labels.ok_or_else(|| failed("a column of an unknown type"))?;
            arrow_array::ArrayAccessor::value(&labels, row).into_bound_py_any(py)
        };
        let values = (0..len).map(value).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, values).map(Some)
    }
}
