# Rows of INSERT statements, as objects; of each place how many there are, of what price, and under how many names.
[inputs
 | select(startswith("INSERT"))
 | capture("VALUES\\((?<id>\\d+), .(?<name>[a-z ]+)., (?<place>\\d+), (?<price>[0-9.]+)")
 | .place |= tonumber
 | .price |= tonumber]
| group_by(.place)
| map({place: .[0].place, rows: length, sum: (map(.price) | add), names: (map(.name) | unique | length)})
| sort_by(.sum)
