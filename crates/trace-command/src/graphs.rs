//! The graphs, as files.

use crate::{Args, page};
use anyhow::{Context, bail};
use bentpipe_trace::{Connection, Series, Side, Trace, letters, svg, xplot};
use std::fs;
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
        save(file, &page::page(&title, &connections)?)?;
    }
    for (index, connection, series) in connections {
        let (a, b) = letters(index);
        for (side, from, to) in [(Side::A, &a, &b), (Side::B, &b, &a)] {
            let stream = series.stream(side);
            let has_data = connection.direction(side).data_packets > 0;
            if let Some(folder) = args.svg.as_deref().filter(|_| has_data) {
                let text = svg(connection, stream, side);
                into(folder, &format!("{from}2{to}_tsg.svg"), &text)?;
            }
            if let Some(folder) = args.xplot.as_deref() {
                for (name, text) in xplot(connection, stream, side, (from, to)) {
                    into(folder, &name, &text)?;
                }
            }
        }
    }
    Ok(())
}

fn into(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    save(&folder.join(name), text)
}

fn save(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write `{}`", file.display()))
}
