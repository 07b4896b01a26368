# Reads a file of SQL: regular expressions, hashes, sorting, formatting.
use strict;
use warnings;

my (%count, %sum, %pairs, $letters);
while (my $line = <>) {
    next unless $line =~ /^INSERT INTO (\w+) VALUES\((\d+), '([^']*)', (\d+), ([\d.]+)\);$/;
    my ($id, $name, $place, $price) = ($2, $3, $4, $5);
    my @words = split / /, $name;
    $count{$_}++ for @words;
    $sum{$words[0]} += $price * ($place % 10);
    $pairs{join '-', sort @words[0, 1]} .= chr(97 + $id % 26);
    (my $other = uc $name) =~ s/([AEIOU])/lc $1/ge;
    $letters += ($other =~ tr/a-z//);
}
printf "%-10s %8d %14.2f\n", $_, $count{$_}, $sum{$_} for sort { $count{$b} <=> $count{$a} or $a cmp $b } keys %count;
for my $pair (sort keys %pairs) {
    my $text = $pairs{$pair};
    1 while $text =~ s/(.)\1/$1/;
    printf "%s %d %s\n", $pair, length $text, substr $text, 0, 20;
}
print "$letters\n";
