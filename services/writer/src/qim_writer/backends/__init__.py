"""The storage backends; each satisfies the Protocols of `qim_writer.storage`."""
