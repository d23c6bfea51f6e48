//! The native part of the Python package `bentpipe`: scenarios, runs, studies, and their figures as Arrow tables.
//!
//! What users call is in `bentpipe/*.py`, with its types and documentation; here is what those cannot do themselves. All that takes
//! long lets go of the interpreter, and asks it every now and then whether someone wants to stop ([`interruptible`]).
//!
//! Begin with [`scenario`], then [`run`].

mod columns;
mod control;
mod errors;
mod figures;
mod interruptible;
mod run;
mod scenario;
mod study;
mod table;
mod value;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("COLOURS", bentpipe_study::COLOURS)?;
    module.add_class::<scenario::Scenario>()?;
    module.add_class::<run::Outcome>()?;
    module.add_class::<study::Study>()?;
    module.add_class::<study::Session>()?;
    module.add_class::<study::Found>()?;
    module.add_class::<control::Window>()?;
    module.add_class::<control::PyAck>()?;
    module.add_class::<table::Table>()?;
    module.add_function(wrap_pyfunction!(run::run, module)?)?;
    module.add_function(wrap_pyfunction!(run::measures, module)?)
}
