//! Tests of the command `experiments` and of its figures.

#[cfg(feature = "measure")]
mod accuracy;
mod book;
mod command;
mod figures;
mod grid;
mod hybrid;
mod jigsaw;
mod layers;
mod limits;
mod page;
mod page_in_browser;
mod paper;
mod partition;
mod plans;
mod published;
mod published_fit;
mod qos;
mod resume;
mod rows;
mod scale;
mod search_time;
mod sensitivity;
mod sharing;
#[cfg(feature = "measure")]
mod spb;
mod splits;
mod svg;
mod sweep;
