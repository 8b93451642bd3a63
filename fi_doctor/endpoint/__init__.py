"""The HTTP endpoint of `fi-doctor serve`: where reports come from, and what is answered; the server is a library's."""
