# Bytes by section and by owner, from a linker map of GNU ld: what `make size` prints.
function number(hex,    value, at) {
  hex = tolower(substr(hex, 3))
  value = 0
  for (at = 1; at <= length(hex); ++at) {
    value = value * 16 + index("0123456789abcdef", substr(hex, at, 1)) - 1
  }
  return value
}
function owner(file, section) {
  if (file ~ /_(host|math)\.o$/) return "host operators"
  if (file ~ /\/hwlib\/src\//) return "HWlib"
  if (file ~ /\/library\//) return "library"
  if (file ~ /\/hal\//) return "HAL"
  if (file ~ /\/src\//) return section ~ /_(flash|weights)/ ? "weights" : "model"
  if (file ~ /\/(app|extra)\/|app_io\.o$/) return "program around the model"
  return "compiler and C library"
}
function add(section, bytes, file,    who) {
  if (output == "" || bytes == 0) return
  who = owner(file, section)
  table[output, who] += bytes
  if (!(output in sections)) { sections[output] = ++count; names[count] = output }
  if (!(who in owners)) { owners[who] = ++people; persons[people] = who }
}
/^Linker script and memory map/ { started = 1; next }
!started { next }
/^\/DISCARD\/|^OUTPUT\(/ { output = ""; next }
# An output section: .text  0x80000000  0x1234
/^\.[^ ]+/ { output = $1 ~ /^\.(debug|comment|note|gnu|riscv|ARM|symtab|strtab|shstrtab)/ ? "" : $1; next }
# An input section, whose name alone may fill the line.
/^ \.?[A-Za-z_][^ ]*$/ { pending = $1; next }
/^ +0x[0-9a-f]+ +0x[0-9a-f]+ [^ ]/ && pending != "" { add(pending, number($2), $3); pending = ""; next }
/^ \.?[A-Za-z_][^ ]* +0x[0-9a-f]+ +0x[0-9a-f]+ [^ ]/ { add($1, number($3), $4); pending = ""; next }
{ pending = "" }
END {
  printf "%-28s %10s\n", "section, owner", "bytes"
  for (s = 1; s <= count; ++s) {
    sum = 0
    for (p = 1; p <= people; ++p) sum += table[names[s], persons[p]]
    if (!sum) continue
    printf "%-28s %10d\n", names[s], sum
    for (p = 1; p <= people; ++p) {
      bytes = table[names[s], persons[p]]
      if (bytes) printf "  %-26s %10d\n", persons[p], bytes
    }
  }
}
