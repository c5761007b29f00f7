"""The worker: takes jobs from the queue and trains each in a child process.

- `tasks`: the Celery task and the worker's command line (`python -m worker.tasks`)
- `supervise`: one attempt at a job, from its claim to its end
- `record`: all that an attempt reads from the database and writes to it
- `child`: the `Child` that a supervisor knows, and the real one, a process
- `health`: after a fault of the machine, no job is taken until a test succeeds
- `reaper`: heartbeat of the worker, lost jobs, parents, jobs that wait
- `identity`: the worker's id, and whether it has to stop
- `messages`: what goes between supervisor and child; knows nothing of the service
- `faults`: which errors are the machine's; knows nothing of the service
- `train`: the child's program, the only one that imports torch
- `lifeline`: how the child hears its supervisor, and ends with it
"""
