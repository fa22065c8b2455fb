# The bash that runs a container's Java reads this by BASH_ENV: without a trap a SIGTERM would end it, and so the
# container, before what it runs has saved its state.
trap : TERM
unset BASH_ENV
