"""The function from Python: a task like any other."""

import kilnwork as kiln

greet = kiln.function(
    {
        "service": "greeter",
        "request": {"method": "GET", "url": "/greetings/${task.inputs.whom}"},
    },
    result=str,
)

if __name__ == "__main__":
    with kiln.connect():
        print([future.result(120) for future in [greet.submit(whom=one) for one in ("Ada", "Bob")]])
