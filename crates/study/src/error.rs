use bentpipe_config::Problems;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A study could not be read, run or written. What is finished is kept in the results folder.
#[derive(Debug, Error)]
pub enum StudyError {
    /// A file could not be read.
    #[error("cannot read {} ({source}): give a study's folder, or its TOML file", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A profile of cross traffic could not be read.
    #[error(
        "cannot read the profile {} ({source}); make it with `bentpipe traffic ftp -o {}`",
        .path.display(), .path.display()
    )]
    Profile {
        /// The file, beside the study's.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A profile of cross traffic is wrong: file, line and what to write instead.
    #[error("{0}")]
    Traffic(String),
    /// The study is wrong.
    #[error("{0}")]
    Problems(#[from] Problems),
    /// A file of values beside the study is wrong.
    #[error("{file}:{line}: {what}: expected {expected}")]
    Values {
        /// The file's name.
        file: String,
        /// Line, counted from 1.
        line: u64,
        /// What was found.
        what: String,
        /// What would have been right.
        expected: String,
    },
    /// The results of something else lie in the folder.
    #[error(
        "{} holds {points} points of {what}, which are kept: give another folder by --out, or \
         replace them by --fresh", .path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Whose results they are.
        what: String,
        /// How many.
        points: usize,
    },
    /// Something that is not of a study lies where its results would.
    #[error("{} is not of a study, and would be lost: give another folder by --out", .0.display())]
    Taken(PathBuf),
    /// Another study is writing there: both would spoil each other's lines.
    #[error(
        "another `study run` is writing to {}: wait for its end, or give another folder by --out",
        .0.display()
    )]
    Busy(PathBuf),
    /// The values of all points do not fit into memory.
    #[error("{points} points are more than memory holds: give fewer values or seeds")]
    TooMany {
        /// How many the study has.
        points: u64,
    },
    /// The results folder could not be written.
    #[error(
        "cannot write {} ({source}): {kept} finished points are kept; make room, or give another \
         folder by --out, and run again", .path.display()
    )]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
        /// Points that stand in the folder.
        kept: u64,
    },
    /// Points could not be run; the others are finished.
    #[error(
        "{failed} of {total} points failed, the first is {first}; {} names them all. The others are kept: the same command \
         tries those that failed again", .file.display()
    )]
    Failed {
        /// How many failed.
        failed: u64,
        /// In all.
        total: u64,
        /// The labels of the first, and what went wrong.
        first: String,
        /// Has a line for each.
        file: PathBuf,
    },
    /// A point could not be run whose course a figure shows.
    #[error("point {labels}: {why}")]
    Point {
        /// The label of its value on each axis.
        labels: String,
        /// What went wrong.
        why: String,
    },
    /// The folder of a shard is not of this study, or of another version.
    #[error("{} holds points of {what}: give the folders of this study's shards", .path.display())]
    ForeignShard {
        /// The folder.
        path: PathBuf,
        /// Whose results they are.
        what: String,
    },
    /// A folder that should be that of a shard has no results.
    #[error("{} holds no results of a study: give the folders that `study run --shard` wrote", .0.display())]
    NoShard(PathBuf),
    /// A folder that is only read has no results.
    #[error("there are no results of a study in {}: run it, or give the folder of its run", .0.display())]
    NoResults(PathBuf),
    /// A folder that is only read has not all points.
    #[error(
        "{} has {done} of {total} points: run the study to its end, or name the seeds and values that it ran with",
        .path.display()
    )]
    Unfinished {
        /// The folder.
        path: PathBuf,
        /// Points that are there.
        done: u64,
        /// Points that were asked for.
        total: u64,
    },
    /// A shard's folder could not be read.
    #[error("cannot read the shard's results {} ({source})", .path.display())]
    ReadShard {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Points are in no folder of a shard.
    #[error(
        "{points} of {total} points are missing, the others are kept in {}: {whose}{}", .path.display(), why(.reasons)
    )]
    Lost {
        /// How many are missing.
        points: u64,
        /// In all.
        total: u64,
        /// Which shards lack them, and what to do.
        whose: String,
        /// A file that says why points of a shard failed.
        reasons: Option<PathBuf>,
        /// Where those are kept that are there.
        path: PathBuf,
    },
    /// What should be the row of a point is none.
    #[error(
        "`{0}` is not the key of a point: the row comes from something else than this version of bentpipe"
    )]
    Row(String),
    /// Someone asked to stop.
    #[error("interrupted after {done} of {total} points, which are kept: the same command goes on")]
    Interrupted {
        /// Finished.
        done: u64,
        /// In all.
        total: u64,
    },
}

fn why(reasons: &Option<PathBuf>) -> String {
    let file = reasons.as_deref().map(Path::display);
    file.map_or_else(String::new, |file| format!("; {file} says why some failed"))
}
