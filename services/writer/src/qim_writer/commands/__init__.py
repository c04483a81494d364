"""What the writer does, one module a subject. The rules are in `qim_writer.domain`, the data behind `storage`."""
