//! The graphs, as files.

use crate::{Args, page};
use anyhow::{Context, bail};
use bentpipe_trace::{Connection, Limits, Recorder, Series, Side, Trace, letters, svg, xplot};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;

/// Connections that a folder has graphs of at most, and a page has in its list.
const MOST: usize = 1000;

/// Writes what `args` ask for.
pub(crate) fn write(args: &Args, trace: &Trace) -> anyhow::Result<()> {
    let all = trace.connections().iter().enumerate();
    let connections: Vec<(usize, &Connection, &Series)> = all
        .filter_map(|(index, connection)| Some((index, connection, trace.series(index)?)))
        .collect();
    if connections.len() > MOST {
        let count = connections.len();
        bail!("{count} connections are too many for graphs: name those that matter by --only");
    }
    if let Some(file) = &args.html {
        if connections.is_empty() {
            bail!("there are no connections to show in `{}`", file.display());
        }
        let title = args.files.iter().map(|file| file.display().to_string());
        let title = title.collect::<Vec<_>>().join(", ");
        save(file, |out| page::write(out, &title, &connections))?;
    }
    for (index, connection, series) in connections {
        let (a, b) = letters(index);
        for (side, from, to) in [(Side::A, &a, &b), (Side::B, &b, &a)] {
            let stream = series.stream(side);
            let has_data = connection.direction(side).data_packets > 0;
            if let Some(folder) = args.svg.as_deref().filter(|_| has_data) {
                let text = svg(connection, stream, side, None);
                into(folder, &format!("{from}2{to}_tsg.svg"), &text)?;
            }
            if let Some(folder) = args.xplot.as_deref() {
                for graph in xplot(connection, stream, side, (from, to)) {
                    into(folder, &graph.name, &graph)?;
                }
            }
        }
    }
    Ok(())
}

/// The time-sequence graph, as SVG, of what carries most data in the capture `file`, in the given seconds since the first
/// packet of its connection; `None`: in all.
///
/// # Errors
/// When the file is no capture, cannot be read, or holds no connection with data.
pub fn time_sequence(file: &Path, seconds: Option<Range<f64>>) -> anyhow::Result<String> {
    let name = file.display();
    let mut trace = Trace::new(Limits::default());
    trace.record(Recorder::new(&[]));
    crate::take(&mut trace, file).with_context(|| format!("cannot read `{name}`"))?;
    trace.finish();
    let Some((index, side)) = trace.heaviest() else {
        bail!("no connection in `{name}` carries data");
    };
    let Some(series) = trace.series(index) else {
        bail!("`{name}` has too many segments before this connection for a graph");
    };
    let connection = &trace.connections()[index];
    Ok(svg(connection, series.stream(side), side, seconds))
}

fn into(folder: &Path, name: &str, text: &dyn fmt::Display) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    save(&folder.join(name), |out| write!(out, "{text}"))
}

/// Has `file` written through a buffer, so that what is written need not be in memory.
fn save(
    file: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let written = || {
        let mut out = BufWriter::with_capacity(1 << 18, File::create(file)?);
        write(&mut out)?;
        out.flush()
    };
    written().with_context(|| format!("cannot write `{}`", file.display()))
}
