"""A report as text."""


def report_text(report: dict, indent: str = "") -> str:
    """The report as lines `name: value`, nested ones indented."""
    lines = []
    for name, value in report.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:"] + [report_text(value, indent + "  ")] if value else []
        elif isinstance(value, list):
            lines += [f"{indent}{name}:"] + [f"{indent}  {entry}" for entry in value] if value else []
        else:
            lines.append(f"{indent}{name}: {value:,}" if type(value) is int else f"{indent}{name}: {value}")
    return "\n".join(lines)
